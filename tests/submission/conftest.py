from judge_of_text import judge
