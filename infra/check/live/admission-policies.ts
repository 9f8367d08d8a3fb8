import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { isUnevaluated, openUnevaluated, type Unevaluated } from "../evaluation/unevaluated.ts";
import type { Discovered, Resource } from "./discovery.ts";
import type { Broken, Page } from "./pages.ts";
import { toResourceName } from "./selected-kinds.ts";

const kinds = ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "ResourceQuota"];

export const readUnevaluated = async (
  { resources, unknown }: Discovered,
  list: (resource: Resource) => AsyncIterable<Page | Broken>,
  note: (sentence: string) => void,
): Promise<Unevaluated> => {
  const objects: KubernetesObject[] = [];
  const unreadable = new Set<string>();
  for (const one of unknown)
    for (const kind of kinds.filter((kind) => isUnevaluated({ apiVersion: joinApiVersion(one), kind }))) {
      note(`whether there is a ${kind} can't be told: ${one.why}`);
      unreadable.add(kind);
    }
  const seen = new Set<string>();
  for (const resource of resources) {
    const { kind } = resource.kind;
    const apiVersion = joinApiVersion(resource.kind);
    // Of several versions, discovery lists the preferred one first.
    if (!isUnevaluated({ apiVersion, kind }) || seen.has(kind)) continue;
    seen.add(kind);
    for await (const page of list(resource))
      if ("items" in page) objects.push(...page.items.map((item) => ({ ...item, apiVersion, kind })));
      else {
        note(`${toResourceName(resource)} could not be read whole, and may match any request: ${page.broken}`);
        unreadable.add(kind.replace(/Binding$/, ""));
      }
  }
  return openUnevaluated(objects, true, [...unreadable].sort());
};
