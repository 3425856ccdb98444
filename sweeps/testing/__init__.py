"""Fakes and conformance suites for users' extensions.

Subclass a suite in a test file of your own, and pytest runs its tests on your extension:

fake_session            a stand-in for Ray Train: run a training loop in the test's own process
pytest_trainers         `TrainerTests`: what every trainer must do
pytest_preprocessors    `PreprocessorTests`: what every preprocessing step must do
pytest_trackers         `TrackerTests`: what every tracker must do
pytest_schedulers       `SchedulerTests`: what every scheduler must do
pytest_samplers         `SamplerTests`: what every sampler must do
"""
