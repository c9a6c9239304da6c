import collections
Environment = collections.namedtuple("Environment", "version python")
WHERE={"1.2.1":"v36","1.5.1":"v151","1.9.1":"v311"}
def mxnet_environment(version): return Environment(version, "/tmp/w/%s/bin/python"%WHERE[version])
