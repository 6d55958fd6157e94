def pytest_configure(config):
    config.addinivalue_line("markers", "slow: minutes rather than seconds; leave out: -m 'not slow'")
