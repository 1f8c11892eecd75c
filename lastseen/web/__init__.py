"""The page and the API of `lastseen serve`: a FastAPI application for one person on one machine.

    security.py    who may ask: this machine's own page, nobody else's
    media.py       which files may be read: folders given, uploads, what the index holds
    jobs.py        long work, one piece at a time, which can be cancelled
    work.py        what the jobs do: read a video into the index, ask it
    videos.py      routes about videos and pictures
    answers.py     routes about questions, jobs and answers
    server.py      create_app: all of it put together
    run.py         a socket and uvicorn
    page/          plain HTML, CSS and JavaScript; asks for nothing outside

The only room that imports a web framework.
"""
