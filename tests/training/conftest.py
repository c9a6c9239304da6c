import collections, pathlib, pytest
Environment = collections.namedtuple("Environment", "version python")
WHERE={"1.2.1":"v36","1.5.1":"v151","1.9.1":"v311"}
@pytest.fixture
def scripts(): return pathlib.Path(__file__).parent/"scripts"
@pytest.fixture(params=["1.9.1","1.5.1","1.2.1"])
def every_mxnet(request): return Environment(request.param, "/tmp/w/%s/bin/python"%WHERE[request.param])
@pytest.fixture
def mxnet_new(): return Environment("1.9.1", "/tmp/w/v311/bin/python")
