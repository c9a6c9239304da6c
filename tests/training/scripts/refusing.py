"""What scripts share that ask a kv-store for what it must refuse."""


def refused(error, words, function, *arguments):
    """The function raises this error for these arguments, and the message has these words."""
    try:
        function(*arguments)
    except error as problem:
        assert all(word in str(problem) for word in words), "%r lacks %s" % (str(problem), words)
    else:
        raise AssertionError("%s %s was accepted" % (function, arguments))
