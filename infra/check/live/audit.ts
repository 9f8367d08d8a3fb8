import { joinApiVersion } from "#lib/objects/api-version.ts";
import type { Operation, UserInfo } from "#lib/review.ts";
import type { Listed } from "../../catalogue/registry.ts";
import { Complaint } from "../../cli/complaint.ts";
import { counted, type Progress, type Tell } from "../../cli/progress.ts";
import { type Deployer, wayTo } from "../../clusters/access.ts";
import type { Cluster } from "../../config/config.ts";
import { readAll } from "../check.ts";
import type { Court, Judged } from "../evaluation/evaluate.ts";
import { hooked } from "../evaluation/hooked.ts";
import { hasWorkloads } from "../evaluation/pod-templates.ts";
import { openRules } from "../evaluation/rules.ts";
import { findReportVersion, type ReportVersion } from "../reports/policyreport.ts";
import type { Unread } from "../reports/report.ts";
import { auditedWorld } from "./capabilities.ts";
import { alikeIn } from "./conversions.ts";
import { discovered, type Resource, rootOf } from "./discovery.ts";
import { openJury } from "./evaluators.ts";
import { openNamespaces } from "./namespaces.ts";
import { pagesOf } from "./pages.ts";
import { openReader, type Read, refusalIn, type Why } from "./reader.ts";
import { called, chosenOf, isAbout, kindsIn } from "./selected-kinds.ts";
import { readUnevaluated } from "./unevaluated.ts";

/** What is audited, and how. */
export interface Setup {
  catalogue: Listed[];
  cluster: [name: string, Cluster];
  deployer: Deployer;
  harden: boolean;
  /** Of somebody else's webhook configurations. */
  webhooks: readonly string[];
  /** Hosts that may be called: others' webhooks, and what rules ask outside. */
  hosts: readonly string[];
  operation: Operation;
  user: UserInfo;
  /** Only what is in these; everything, if none is named. */
  namespaces: readonly string[];
  alsoPods: boolean;
  /** How many objects are read at once. */
  page: number;
}

/** An audit that is about to begin. */
export interface Audit {
  /** What can't be read, as it comes to light. */
  unread: Unread[];
  notes: Set<string>;
  reportVersion: ReportVersion | undefined;
  /** Judges all there is, one kind after the other, and hands each over before it goes on. */
  run(progress: Progress, take: (judged: Judged) => Promise<void>): Promise<void>;
}

/** So many at once: rules may wait for the cluster. */
const atOnce = 8;

/** Finds out what a cluster has that its rules are about. It ends at `signal`, with what it has until then. */
export const openAudit = async (setup: Setup, signal: AbortSignal): Promise<Audit> => {
  const { catalogue, cluster, hosts, operation, user } = setup;
  const [name, { connect }] = cluster;
  const foreign = await readAll(setup.webhooks, "--webhooks");
  const way = await wayTo(name, connect, { ...setup.deployer, right: "list everything" });
  const reader = openReader(way, signal);
  const why: Why = (answer) => refusalIn(answer, way);
  const [notes, unread] = [new Set<string>(), [] as Unread[]];

  const found = await discovered(reader.read, why);
  for (const namespace of setup.namespaces) await checkNamespace(namespace, reader.read, why);
  const rules = await openRules(catalogue, cluster, setup.harden, await auditedWorld(name, way, hosts));
  for (const note of rules.notes) notes.add(note);
  const hooks = hooked(rules, foreign, name, hosts);
  const asked = [...hooks.hooks.mutating, ...hooks.hooks.validating];
  const kinds = kindsIn(found, await alikeIn(found, asked, reader.read));
  const namespaces = openNamespaces(reader.read, why);
  const note = (sentence: string) => void notes.add(sentence);
  const unevaluated = await readUnevaluated(found, {
    ...{ read: reader.read, why, page: setup.page, note },
    placesOf: (one) => placesOf(one, one.namespaced ? setup.namespaces : []),
  });
  const court: Court = {
    ...{ ...hooks, kinds, unevaluated, existing: namespaces, old: new Map(), alsoPods: setup.alsoPods },
    ...{ asking: { operation, user, namespace: "" }, isWorldKnown: false },
    moreOf: "who may read namespaces can tell",
    // Whoever asks for a namespace says what is to be said of it.
    missing: () => {},
  };
  const jury = openJury({ court, namespaces, operation, user, alsoPods: setup.alsoPods, note });

  const { resources: all, unlisted } = chosenOf(found, kinds, asked, operation, setup.alsoPods);
  const resources = all.filter((one) => placesOf(one, setup.namespaces).length > 0);
  if (unlisted.length > 0) notes.add(`${unlisted.map(called).join(", ")} can't be listed, and are left out`);
  if (resources.length === 0) notes.add(`no rule is about anything that cluster ${name} has`);
  for (const { group, version, why } of found.unknown) {
    const apiVersion = joinApiVersion({ group, version });
    const text = `which kinds there are in ${apiVersion} can't be told: ${why}`;
    if (isAbout(asked, { group, version }) || (setup.alsoPods && hasWorkloads(apiVersion)))
      unread.push(unreadOf({ apiVersion, kind: "" }, text));
  }

  const audited = async (resource: Resource, take: (judged: Judged) => Promise<void>, tell: Tell): Promise<string> => {
    const apiVersion = joinApiVersion(resource.kind);
    const { kind } = resource.kind;
    const broken: string[] = [];
    let [seen, total, denied] = [0, 0, 0];
    const sentence = () =>
      [
        counted(seen, "object"),
        ...(denied > 0 ? [`${denied} denied`] : []),
        ...broken.map((why) => `not whole: ${why}`),
      ].join(", ");
    for (const { path, selection } of placesOf(resource, setup.namespaces))
      for await (const page of pagesOf(reader.read, why, path, selection, setup.page)) {
        if (signal.aborted) return sentence();
        if ("broken" in page) {
          broken.push(page.broken);
          unread.push(unreadOf({ apiVersion, kind }, `${called(resource)} could not be read whole: ${page.broken}`));
          continue;
        }
        total = Math.max(total, seen + page.items.length + (page.remaining ?? 0));
        while (page.items.length > 0) {
          tell(seen, total);
          const some = page.items.splice(0, atOnce);
          const judged = await Promise.all(some.map((item) => jury({ ...item, apiVersion, kind }, resource)));
          // What was judged is told, whoever ended it meanwhile.
          for (const each of judged.flat()) {
            if (each.checked.verdict === "denied") denied++;
            await take(each);
          }
          seen += some.length;
          if (signal.aborted) return sentence();
        }
      }
    return sentence();
  };

  return {
    ...{ unread, notes, reportVersion: findReportVersion(found.resources) },
    run: async (progress, take) => {
      signal.addEventListener("abort", reader.close);
      try {
        for (const resource of resources)
          if (!signal.aborted) await progress.step(called(resource), (tell) => audited(resource, take, tell));
      } finally {
        signal.removeEventListener("abort", reader.close);
        reader.close();
      }
    },
  };
};

/** A name that nobody has would be an audit of nothing. */
const checkNamespace = async (name: string, read: Read, why: Why): Promise<void> => {
  const answer = await read(`/api/v1/namespaces/${encodeURIComponent(name)}`);
  // Who may not look there may be allowed what is in it.
  if ("status" in answer && [200, 403].includes(answer.status)) return;
  throw new Complaint(`--namespace ${name}: ${why(answer)}`, "status" in answer ? 2 : 3);
};

/** Where a resource is listed; of some namespaces, there and, of themselves, by name. */
const placesOf = ({ kind, resource, namespaced }: Resource, namespaces: readonly string[]) => {
  const root = rootOf(joinApiVersion(kind));
  const isNamespaces = resource.group === "" && resource.resource === "namespaces";
  if (namespaces.length === 0) return [{ path: `${root}/${resource.resource}`, selection: {} }];
  return namespaces.flatMap((name) => {
    if (isNamespaces)
      return [{ path: `${root}/${resource.resource}`, selection: { fieldSelector: `metadata.name=${name}` } }];
    const path = `${root}/namespaces/${encodeURIComponent(name)}/${resource.resource}`;
    return namespaced ? [{ path, selection: {} }] : [];
  });
};

const unreadOf = (about: { apiVersion: string; kind: string }, text: string): Unread => {
  const nothing = { denials: [], warnings: [], changes: [], passed: [] };
  const checked = { ...about, name: "", verdict: "undecided" as const, undecided: [text], ...nothing };
  return { fault: { ...about, sentence: text }, text, checked };
};
