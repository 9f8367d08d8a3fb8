// The policies that this folder applies may be invalid, so each error names the field that is wrong.

import type { FoundValue, JsonMap } from "../../json.ts";
import type { KubernetesObject } from "../../review.ts";
import type { OverrideTemplate, ValueReference } from "../types.ts";
import { changeAffinity } from "./affinity.ts";
import { changeMetadata, hasNonEmptyConstant } from "./metadata.ts";
import { findPodSpec } from "./pod-spec.ts";
import { applyOversellToFirstContainer, changeResources } from "./resources.ts";
import { changeTolerations } from "./tolerations.ts";

const podSpecChanges = new Map<string, (podSpec: JsonMap, template: OverrideTemplate) => boolean>([
  ["resources", changeResources],
  ["resourcesOversell", applyOversellToFirstContainer],
  ["tolerations", changeTolerations],
  ["affinity", changeAffinity],
]);

const isMetadataType = (type: string): type is "annotations" | "labels" => type === "annotations" || type === "labels";

/** Returns the reference that a template uses. Only templates of annotations and labels without a constant use one. */
export const findTemplateReference = ({
  type,
  operation,
  value,
  valueRef,
}: OverrideTemplate): ValueReference | undefined =>
  isMetadataType(type) && operation !== "remove" && !hasNonEmptyConstant(value) ? (valueRef ?? undefined) : undefined;

/** Applies an override template in place, and reports whether anything changed. Most types change only a pod spec. */
export const applyTemplate = (
  object: KubernetesObject,
  template: OverrideTemplate,
  referenced: FoundValue | undefined,
): boolean => {
  const { type, operation } = template;
  if (!["add", "replace", "remove"].includes(operation))
    throw new Error("template.operation must be add, replace or remove");
  if (isMetadataType(type)) return changeMetadata(object, type, template, referenced);

  const change = podSpecChanges.get(type);
  if (change === undefined)
    throw new Error(`template.type must be annotations, labels, ${[...podSpecChanges.keys()].join(", ")}`);
  const podSpec = findPodSpec(object);
  return podSpec !== undefined && change(podSpec, template);
};
