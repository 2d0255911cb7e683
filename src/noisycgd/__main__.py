"""`python -m noisycgd` is the command `noisycgd`."""

from noisycgd.cli.main import main

main()
