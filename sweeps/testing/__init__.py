"""Fakes and conformance suites for users' extensions.

Subclass a suite in your own test file, and pytest runs the suite's tests on your extension:

fake_session            `run_loop`: run a training loop in the test's own process, without Ray Train
pytest_trainers         `TrainerTests`: tests that every trainer must pass
pytest_preprocessors    `PreprocessorTests`: tests that every preprocessing step must pass
pytest_trackers         `TrackerTests`: tests that every tracker must pass
pytest_schedulers       `SchedulerTests`: tests that every scheduler must pass
pytest_samplers         `SamplerTests`: tests that every sampler must pass
"""
