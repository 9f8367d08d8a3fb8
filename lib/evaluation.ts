import { bindNeeds } from "./capabilities.ts";
import { createEvaluate } from "./decide.ts";
import { createDraft } from "./patch.ts";

/** Evaluates any rule for one request. A bundle contains only the parts of it that its rule needs. */
export const evaluateRule = createEvaluate(createDraft, bindNeeds);
