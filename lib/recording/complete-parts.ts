import { evaluateRule } from "../evaluation.ts";
import { noteAnswers } from "./notes.ts";
import { createAnswerRepeater } from "./repeated-answers.ts";
import type { OptionalRecorderFunctions } from "./traced-decision.ts";

/** All optional parts of a recorder. With them, it can record reviews of any rule. */
export const allOptionalRecorderFunctions: OptionalRecorderFunctions = {
  evaluate: evaluateRule,
  answers: { noteAnswers, createAnswerRepeater },
};
