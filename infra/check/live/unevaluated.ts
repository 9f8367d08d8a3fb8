import type { KubernetesObject } from "#lib/review.ts";
import { apiVersionOf } from "../../kinds/kinds.ts";
import { isUnevaluated, openUnevaluated, type Unevaluated } from "../judging/unevaluated.ts";
import type { Discovered, Resource } from "./discovery.ts";
import { pagesOf } from "./pages.ts";
import type { Read, Why } from "./reader.ts";

/** Reads the admission policies and quotas of a cluster. What can't be read may match any request. */
export const readUnevaluated = async (
  { resources, unknown }: Discovered,
  read: Read,
  why: Why,
  placesOf: (resource: Resource) => { path: string; selection: Record<string, string> }[],
  page: number,
): Promise<Unevaluated> => {
  const unreadable = unknown
    .filter((one) => kinds.some((kind) => isUnevaluated({ apiVersion: apiVersionOf(one), kind })))
    .map((one) => `which policies match it: what there is in ${apiVersionOf(one)} can't be told: ${one.why}`);
  const objects: KubernetesObject[] = [];
  const seen = new Set<string>();
  for (const resource of resources) {
    const { kind } = resource.kind;
    const apiVersion = apiVersionOf(resource.kind);
    // Of several versions, discovery lists the preferred one first.
    if (!isUnevaluated({ apiVersion, kind }) || seen.has(kind)) continue;
    seen.add(kind);
    for (const { path, selection } of placesOf(resource))
      for await (const found of pagesOf(read, why, path, selection, page))
        if ("broken" in found) unreadable.push(`whether a ${kind} matches it: ${found.broken}`);
        else objects.push(...found.items.map((item) => ({ ...item, apiVersion, kind })));
  }
  return openUnevaluated(objects, true, [...new Set(unreadable)]);
};

const kinds = ["ValidatingAdmissionPolicy", "ResourceQuota"];
