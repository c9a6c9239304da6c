"""The errors of yum 3."""


class YumBaseError(Exception):
    """An error of yum."""


class RepoError(YumBaseError):
    """An error of a repository."""
