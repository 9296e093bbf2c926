"""A stranger's project: the wheel, ``startproject``, and no file of the reference project."""
