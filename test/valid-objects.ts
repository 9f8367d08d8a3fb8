import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { isMap, type JsonMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { buildCertificateRequest, toPem } from "./parity/generators/certificate-requests.ts";

interface ValidObjects {
  pod: JsonMap;
  podFieldsNotInPodTemplates: string[];
  objects: JsonMap[];
}

/** Returns the objects of valid-objects.yaml, completed with the file's pod as template, and with names. */
export const readValidObjects = (): KubernetesObject[] => {
  const { pod, podFieldsNotInPodTemplates, objects }: ValidObjects = parse(
    readFileSync(join(import.meta.dirname, "valid-objects.yaml"), "utf8").replace(
      "REQUEST",
      Buffer.from(toPem(buildCertificateRequest())).toString("base64"),
    ),
    { merge: true },
  );
  const templateSpec = Object.fromEntries(
    Object.entries(pod).filter(([member]) => !podFieldsNotInPodTemplates.includes(member)),
  );
  const completeTemplate = (template: JsonMap): JsonMap => {
    const spec: JsonMap = Object(template.spec);
    return { ...template, spec: Object.hasOwn(spec, "containers") ? spec : { ...templateSpec, ...spec } };
  };
  const completeTemplates = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(completeTemplates);
    if (!isMap(value)) return value;
    const members = Object.entries(value).map(([key, member]) => {
      const isTemplate = key === "template" && isMap(member);
      return [key, isTemplate ? completeTemplate(member) : completeTemplates(member)];
    });
    return Object.fromEntries(members);
  };
  return objects.map((object, index) => {
    const maps = { labels: { a: "b" }, annotations: { a: "b" } };
    const defaultMetadata = { name: `valid-${index}`, ...maps, finalizers: ["example.com/a"] };
    const completed: JsonMap = { ...object, metadata: { ...defaultMetadata, ...Object(object.metadata) } };
    if (object.kind === "Pod") completed.spec ??= pod;
    return structuredClone(completeTemplates(completed)) as KubernetesObject;
  });
};
