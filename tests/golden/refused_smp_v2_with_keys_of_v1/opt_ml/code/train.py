# not read by the plan
