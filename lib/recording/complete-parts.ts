import { evaluateRule } from "../evaluation.ts";
import { noting } from "./notes.ts";
import { repeatAnswers } from "./repeated-answers.ts";
import type { RecorderParts } from "./traced-decision.ts";

/** What a recorder needs to record reviews of any rule. */
export const completeParts: RecorderParts = { evaluate: evaluateRule, answers: { noting, repeatAnswers } };
