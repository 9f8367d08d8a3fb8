import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { stringify } from "yaml";
import type { Pod } from "#lib/kubernetes/core/v1.ts";
import type { ControlPlaneBinaries } from "../control-plane/binaries.ts";
import {
  measurePodCreateRoutes,
  openBenchPodCreator,
  type PodCreateBenchResults,
  type PodCreateRoute,
} from "./creates.ts";
import {
  type BenchMutatorSet,
  benchMutatorSets,
  countBenchMutatorAnnotations,
  skipBenchMutatorsLabel,
} from "./inputs/mutators.ts";
import { startBenchPostern } from "./processes/processes.ts";

/**
 * Measures the time that several mutators add to a create: if they are called one by one, if their matchConditions skip
 * all of them, and if they are a group.
 */
export const measureMutatorChains = async (
  binaries: ControlPlaneBinaries,
  folder: string,
  rounds: number,
): Promise<PodCreateBenchResults> => {
  await using running = new AsyncDisposableStack();
  const config = join(folder, "chains.yaml");
  await writeFile(config, stringify({ rules: buildRules(benchMutatorSets), groups: buildGroups(benchMutatorSets) }));
  const { manifests } = running.use(await startBenchPostern(folder, config));
  const podCreator = running.use(await openBenchPodCreator(binaries));

  const none: PodCreateRoute = { what: "no webhook", namespace: "none" };
  await podCreator.openNamespace(none.namespace, [], (pod) => countMarks(pod) === 0);
  for (const { name, mutators } of benchMutatorSets) {
    const ruleAndGroupNames = [name, ...mutators.map((listed) => listed.name)];
    const entries = ruleAndGroupNames.flatMap((listedName) => manifests[listedName] ?? []);
    await podCreator.openNamespace(name, entries, (pod) => countMarks(pod) === mutators.length);
  }

  const routes = benchMutatorSets.flatMap(buildRoutes);
  const skippedRoutes = routes.filter(({ labels }) => labels?.[skipBenchMutatorsLabel]);
  for (const route of skippedRoutes)
    if (countMarks(await podCreator.create(route)) > 0) throw new Error(`${route.what} was called`);

  const { measured, compareRoutes } = await measurePodCreateRoutes(podCreator, [none, ...routes], rounds);
  const [one, group] = ["chain-1", "group-10"].map((name) => routes.find(({ namespace }) => namespace === name));
  return {
    measured,
    comparisons: one && group ? [compareRoutes("a group of 10 over one mutator", group, one, { limit: 1.5 })] : [],
  };
};

/** Returns how many of the mutators have changed a pod. */
const countMarks = ({ metadata }: Pod) => countBenchMutatorAnnotations(metadata?.annotations);

const buildRoutes = ({ name, mutators: { length: mutators }, isGroup }: BenchMutatorSet): PodCreateRoute[] => {
  const title = mutators === 1 ? "1 mutator" : `${mutators} mutators`;
  const route = { namespace: name, mutators };
  if (isGroup) return [{ what: `${title} in a group`, ...route }];
  return [
    { what: `${title}, each called`, ...route },
    { what: `${title}, skipped by matchConditions`, ...route, labels: { [skipBenchMutatorsLabel]: "yes" } },
  ];
};

const buildRules = (chains: BenchMutatorSet[]) =>
  Object.fromEntries(chains.flatMap(({ mutators }) => mutators.map(({ name }) => [name, { failurePolicy: "Fail" }])));

const buildGroups = (chains: BenchMutatorSet[]) =>
  Object.fromEntries(
    chains.filter(({ isGroup }) => isGroup).map(({ name, mutators }) => [name, mutators.map((listed) => listed.name)]),
  );
