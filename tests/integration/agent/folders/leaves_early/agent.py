import sys

print("I have no key")
sys.exit(2)
