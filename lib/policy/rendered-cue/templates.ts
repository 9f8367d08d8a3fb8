import type { OverrideTemplate } from "../types.ts";
import { renderAffinityAsCue } from "./affinity.ts";
import { renderMetadataAsCue } from "./metadata.ts";
import { renderOversellTemplateAsCue, renderResourcesTemplateAsCue } from "./resources.ts";
import { renderTolerationsTemplateAsCue } from "./tolerations.ts";

const renderers = {
  annotations: renderMetadataAsCue,
  labels: renderMetadataAsCue,
  resources: renderResourcesTemplateAsCue,
  resourcesOversell: renderOversellTemplateAsCue,
  tolerations: renderTolerationsTemplateAsCue,
  affinity: renderAffinityAsCue,
};

/**
 * Renders an override template as CUE for policy readers; the template must have passed its checks. The CUE changes
 * an object as the template does, or fails: if a field has a wrong shape, or if CUE can't calculate the share of a
 * limit exactly, because the limit has 19 digits or more, is finer than a billionth or beyond 2^63-1.
 */
export const renderTemplateAsCue = (template: OverrideTemplate): string => renderers[template.type](template);
