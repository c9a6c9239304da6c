"""Helper of scripts that check the refusals of a kv-store."""


def refused(error, words, function, *arguments):
    """Check that the function raises this error, and that the message contains these words."""
    try:
        function(*arguments)
    except error as problem:
        assert all(word in str(problem) for word in words), "%r lacks %s" % (str(problem), words)
    else:
        raise AssertionError("%s %s was accepted" % (function, arguments))
