import { evaluateRule } from "../evaluation.ts";
import { noteAnswers } from "./notes.ts";
import { repeatAnswers } from "./repeated-answers.ts";
import type { RecorderParts } from "./traced-decision.ts";

/** All optional parts of a recorder. With them, it can record reviews of any rule. */
export const completeRecorderParts: RecorderParts = { evaluate: evaluateRule, answers: { noteAnswers, repeatAnswers } };
