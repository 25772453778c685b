"""`python -m heddle`: the program."""
from heddle.program import main

main()
