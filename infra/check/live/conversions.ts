import type { Hook } from "#infra/apiserver/admission/hooks.ts";
import { own } from "#lib/json.ts";
import type { Discovered } from "./discovery.ts";
import { pagesOf } from "./pages.ts";
import type { Read } from "./reader.ts";

/** CustomResourceDefinitions can be large. */
const page = 20;
const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/**
 * The custom resources, as group and resource, whose versions differ in nothing but their names. Only who converts others
 * knows how, and hooks may ask for another version than the one that is read; where that is nobody, it isn't looked up.
 */
export const alikeIn = async (
  { resources }: Discovered,
  hooks: readonly Hook[],
  read: Read,
): Promise<ReadonlySet<string>> => {
  const alike = new Set<string>();
  const versions = Map.groupBy(resources, ({ resource: { group, resource } }) => `${group}/${resource}`);
  const several = new Set([...versions].filter(([, all]) => all.length > 1).map(([name]) => name));
  if (several.size === 0 || !hooks.some(({ matchPolicy }) => matchPolicy === "Equivalent")) return alike;
  // Without an answer, conversion stays unknown, and what rests on it can't be said.
  for await (const found of pagesOf(read, () => "", path, {}, page)) {
    if ("broken" in found) break;
    for (const definition of found.items) {
      const spec = own(definition, "spec");
      const name = `${own(spec, "group")}/${own(own(spec, "names"), "plural")}`;
      if (several.has(name) && (own(own(spec, "conversion"), "strategy") ?? "None") === "None") alike.add(name);
    }
  }
  return alike;
};
