import { bindNeeds } from "./capabilities.ts";
import { createEvaluate } from "./decide.ts";
import { createDraft } from "./patch.ts";
import { mergeSince } from "./since.ts";

/**
 * Evaluates any rule for one request, with the code that only some rules need. A bundle contains only the parts of
 * this code that its rule needs.
 */
export const evaluateRule = createEvaluate(createDraft, bindNeeds, mergeSince);
