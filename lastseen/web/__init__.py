"""The page and the API of `lastseen serve`: a FastAPI application for one person on one machine.

    errors.py      what a request can be refused for
    limits.py      how much of the server one can take up
    token.py       lets in who has the token, if others can reach the server
    security.py    refuses requests from other sites
    pictures.py    uploaded pictures of things
    media.py       files that may be read: given folders, uploads, indexed videos
    jobs.py        queue of long-running jobs, which can be cancelled
    work.py        what the jobs do: index a video, search the index
    turns.py       one after the other for what takes much memory
    videos.py      routes for videos and pictures
    kept.py        what is kept of a question and its answers, with the index
    history.py     questions and results, from the index or from the jobs
    answers.py     routes for searches, jobs and answers
    questions.py   routes for questions
    suggestions.py a box suggested in a photo, if a mask model is there
    server.py      create_app: assembles the application
    connections.py HTTP connections that are ended when nothing moves
    run.py         opens a socket and runs uvicorn
    page/          plain HTML, CSS and JavaScript; loads nothing from other servers

The only package that imports a web framework.
"""
