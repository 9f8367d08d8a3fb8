import type { OverrideTemplate } from "../types.ts";
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
 * Renders a template as CUE, for people who read the policy; the template must have passed its checks. The CUE changes
 * an object as the template does, or fails: if a field has a wrong shape, or if CUE can't calculate the share of a
 * limit exactly, because the limit has 19 digits or more, is finer than a billionth or beyond 2^63-1.
 */
export const renderedOverride = (template: OverrideTemplate): string => renderings[template.type](template);
