import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Pod } from "kubernetes-types/core/v1.d.ts";
import { stringify } from "yaml";
import type { Binaries } from "../parity/control-plane/binaries.ts";
import { type Latency, measure, openCreates, type Route } from "./creates.ts";
import { type Chain, chains, marksOn, settled } from "./mutators.ts";
import { startPostern } from "./processes.ts";

/** What chains of mutators add to a create: called one by one, all skipped by their matchConditions, and as a group. */
export const measureChains = async (binaries: Binaries, folder: string, rounds: number): Promise<Latency> => {
  await using running = new AsyncDisposableStack();
  const config = join(folder, "chains.yaml");
  await writeFile(config, stringify({ rules: rulesOf(chains), groups: groupsOf(chains) }));
  const { manifests } = running.use(await startPostern(folder, config));
  const creates = running.use(await openCreates(binaries));

  const none: Route = { what: "no webhook", namespace: "none" };
  await creates.open(none.namespace, [], (pod) => marks(pod) === 0);
  for (const { name, mutators } of chains) {
    const entries = [name, ...mutators.map((listed) => listed.name)].flatMap((one) => manifests[one] ?? []);
    await creates.open(name, entries, (pod) => marks(pod) === mutators.length);
  }

  const routes = chains.flatMap(routesOf);
  for (const route of routes.filter(({ labels }) => labels))
    if (marks(await creates.create(route)) > 0) throw new Error(`${route.what} was called`);

  const { measured, ratio } = await measure(creates, [none, ...routes], rounds);
  const [one, group] = ["chain-1", "group-10"].map((name) => routes.find(({ namespace }) => namespace === name));
  return { measured, comparisons: one && group ? [ratio("a group of 10 over one mutator", group, one, 1.5)] : [] };
};

const marks = ({ metadata }: Pod) => marksOn(metadata?.annotations);

const routesOf = ({ name, mutators: { length: mutators }, together }: Chain): Route[] => {
  const many = mutators === 1 ? "1 mutator" : `${mutators} mutators`;
  const called = { namespace: name, mutators };
  if (together) return [{ what: `${many} in a group`, ...called }];
  return [
    { what: `${many}, called one by one`, ...called },
    { what: `${many}, skipped by matchConditions`, ...called, labels: { [settled]: "yes" } },
  ];
};

const rulesOf = (chains: Chain[]) =>
  Object.fromEntries(chains.flatMap(({ mutators }) => mutators.map(({ name }) => [name, { failurePolicy: "Fail" }])));

const groupsOf = (chains: Chain[]) =>
  Object.fromEntries(
    chains
      .filter(({ together }) => together)
      .map(({ name, mutators }) => [name, mutators.map((listed) => listed.name)]),
  );
