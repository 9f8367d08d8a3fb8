import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { isUnevaluated, openUnevaluated, type Unevaluated } from "../evaluation/unevaluated.ts";
import type { Discovered, Resource } from "./discovery.ts";
import { pagesOf } from "./pages.ts";
import type { Read, Why } from "./reader.ts";
import { called } from "./selected-kinds.ts";

/** Reads the admission policies and quotas of a cluster. `note` hears why something can't be read. */
export const readUnevaluated = async (
  { resources, unknown }: Discovered,
  { read, why, placesOf, page, note }: Means,
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
    for (const { path, selection } of placesOf(resource))
      for await (const found of pagesOf(read, why, path, selection, page)) {
        if ("items" in found) objects.push(...found.items.map((item) => ({ ...item, apiVersion, kind })));
        else {
          note(`${called(resource)} could not be read whole, and may match any request: ${found.broken}`);
          unreadable.add(kind.replace(/Binding$/, ""));
        }
      }
  }
  return openUnevaluated(objects, true, [...unreadable].sort());
};

/** How a cluster is read. */
interface Means {
  read: Read;
  why: Why;
  /** Where a resource is listed. */
  placesOf(resource: Resource): { path: string; selection: Record<string, string> }[];
  page: number;
  note(sentence: string): void;
}

const kinds = ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", "ResourceQuota"];
