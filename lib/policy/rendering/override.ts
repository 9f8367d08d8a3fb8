// Templates as CUE, for readers of a policy: templates of overriders from here, conditions in condition.ts. text.ts has the
// parts of a script, pods.ts and amount.ts what several renderings define. Nothing here evaluates CUE.

import type { OverrideTemplate } from "../kinds.ts";
import { renderedAffinity } from "./affinity.ts";
import { renderedMetadata } from "./metadata.ts";
import { renderedOversell, renderedResources } from "./resources.ts";
import { renderedTolerations } from "./tolerations.ts";

const renderings = {
  annotations: renderedMetadata,
  labels: renderedMetadata,
  resources: renderedResources,
  resourcesOversell: renderedOversell,
  tolerations: renderedTolerations,
  affinity: renderedAffinity,
};

/**
 * What a template is in CUE, for whoever reads the policy; the template must have passed its checks. Evaluated, it makes
 * the same of an object as the template does, or fails: where a field is of another shape than it should be, and where CUE
 * can't reckon exactly the share of a limit, for it has 19 digits or more, or is finer than a billionth or beyond 2^63-1.
 */
export const renderedOverride = (template: OverrideTemplate): string => renderings[template.type](template);
