from lastseen.cli import main

main()
