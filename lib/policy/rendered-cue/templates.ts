import type { OverrideTemplate } from "../types.ts";
import { renderAffinityAsCue } from "./affinity.ts";
import { renderMetadataAsCue } from "./metadata.ts";
import { renderOversellTemplateAsCue, renderResourcesTemplateAsCue } from "./resources.ts";
import { renderTolerationsTemplateAsCue } from "./tolerations.ts";

/** The functions that render a template as CUE, by its type. */
const renderers = {
  annotations: renderMetadataAsCue,
  labels: renderMetadataAsCue,
  resources: renderResourcesTemplateAsCue,
  resourcesOversell: renderOversellTemplateAsCue,
  tolerations: renderTolerationsTemplateAsCue,
  affinity: renderAffinityAsCue,
};

/**
 * Renders an override template as CUE for people who read the policy. The template must be valid. The CUE changes an
 * object as the template does. But it fails if a field has a wrong type, or if CUE can't multiply a resource limit
 * exactly, for instance one with over nine decimals or over 2^63-1, or whose digits, without the point, exceed 2^63-1.
 */
export const renderTemplateAsCue = (template: OverrideTemplate): string => renderers[template.type](template);
