"""A knob can be set in group_vars/all.yml, in the inventory, and on the command line."""


def plan(project, *arguments):
    result = project.run("train.yml", "-e", "plan_only=true", *arguments)
    assert result.code == 0, result.output
    return result.output


def test_a_value_in_group_vars_reaches_a_play(project):
    path = project.path / "group_vars" / "all.yml"
    shipped = path.read_text()
    try:
        path.write_text(shipped + "\ntrain_job_batch_size: 7\n")
        assert "batch size 7 per worker" in plan(project)
        assert "batch size 9 per worker" in plan(project, "-e", "batch_size=9")
    finally:
        path.write_text(shipped)


def test_the_inventorys_own_value_wins_over_the_defaults(project):
    path = project.path / "inventory" / "local" / "group_vars" / "all.yml"
    shipped = path.read_text()
    try:
        path.write_text(shipped + "\ntrain_job_num_epochs: 9\n")
        assert "9 epochs" in plan(project)
    finally:
        path.write_text(shipped)
