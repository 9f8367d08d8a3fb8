import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parse } from "yaml";
import { isMap, type JsonMap } from "#lib/json.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { buildCertificateRequest, toPem } from "./parity/generators/certificate-requests.ts";

interface ValidObjects {
  pod: JsonMap;
  noTemplate: string[];
  objects: JsonMap[];
}

/** Returns the objects of valid-objects.yaml: complete, and with names. */
export const readValidObjects = (): KubernetesObject[] => {
  const { pod, noTemplate, objects }: ValidObjects = parse(
    readFileSync(join(import.meta.dirname, "valid-objects.yaml"), "utf8").replace(
      "REQUEST",
      Buffer.from(toPem(buildCertificateRequest())).toString("base64"),
    ),
    { merge: true },
  );
  const templateSpec = Object.fromEntries(Object.entries(pod).filter(([member]) => !noTemplate.includes(member)));
  const complete = (template: JsonMap): JsonMap => ({
    ...template,
    spec: Object.hasOwn(Object(template.spec), "containers")
      ? template.spec
      : { ...templateSpec, ...Object(template.spec) },
  });
  const edit = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(edit);
    if (!isMap(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, member]) => [
        key,
        key === "template" && isMap(member) ? complete(member) : edit(member),
      ]),
    );
  };
  return objects.map((object, index) => {
    const stated = Object(object.metadata);
    const metadata = {
      name: `valid-${index}`,
      labels: { a: "b" },
      annotations: { a: "b" },
      finalizers: ["example.com/a"],
      ...stated,
    };
    const spec = object.kind === "Pod" ? (object.spec ?? pod) : object.spec;
    return structuredClone(edit({ ...object, metadata, ...(spec !== undefined && { spec }) })) as KubernetesObject;
  });
};
