"""Progress of recipes on texts, as lines."""

from widen.run.progress_lines import progress_lines


def test_progress_says_how_long_is_left_at_the_rate_so_far(capsys):
    times = iter([0.0, 3.0, 10.0, 20.0])
    at = progress_lines(clock=lambda: next(times))
    for done in (100, 130, 200, 1100):  # 100 were there when it began; 100 more took 10 s, so 900 take 90
        at("sample", done, 1100)
    assert capsys.readouterr().out.splitlines() == [
        "sample: 100 of 1,100",
        "sample: 200 of 1,100, 1:30 left",
        "sample: 1,100 of 1,100",
    ]


def test_the_time_left_of_a_second_job_with_the_same_name_begins_anew(capsys):
    times = iter([0.0, 100.0, 1000.0, 1010.0])
    at = progress_lines(clock=lambda: next(times))
    for done in (1, 3, 1, 2):
        at("score", done, 3)
    assert capsys.readouterr().out.splitlines() == [
        "score: 1 of 3",
        "score: 3 of 3",
        "score: 1 of 3",
        "score: 2 of 3, 0:10 left",
    ]
