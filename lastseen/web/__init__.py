"""The page and the API of `lastseen serve`: a FastAPI application for one person on one machine.

    security.py    refuses requests from other sites
    media.py       files that may be read: given folders, uploads, indexed videos
    jobs.py        queue of long-running jobs, which can be cancelled
    work.py        what the jobs do: index a video, search the index
    videos.py      routes for videos and pictures
    answers.py     routes for searches, jobs and answers
    server.py      create_app: assembles the application
    run.py         opens a socket and runs uvicorn
    page/          plain HTML, CSS and JavaScript; loads nothing from other servers

The only package that imports a web framework.
"""
