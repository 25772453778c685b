"""`python -m heddle`: the program."""
from heddle.recipes import main

main()
