import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { LogReport } from "#lib/log-line.ts";
import { type Capabilities, createUnconnectedCapabilities } from "#lib/needs.ts";
import { listPhases, type Phase, type Rule } from "#lib/rule.ts";
import { type CatalogueRule, readCatalogue } from "../catalogue/registry.ts";
import { chooseCluster } from "../config/config.ts";
import { openCertificate, openSigner, type ServerCertificate } from "../keys/keys.ts";
import { parseConfig } from "../project/read.ts";
import { listServedRules } from "../project/served.ts";
import { type Handler, openGateway } from "../serve/gateway.ts";
import { handlerOf, openWorkshop } from "../serve/handlers.ts";
import { configurations } from "../webhooks/configurations.ts";
import type { Client } from "./control-plane/client.ts";
import { signing } from "./test-key.ts";

/** Postern as `npm start` runs it, for a postern.yaml of a test's own. */
export const servePostern = async (
  yaml: string,
  world: typeof createUnconnectedCapabilities | Required<Host>["world"] = createUnconnectedCapabilities,
) => {
  const folder = await mkdtemp(join(tmpdir(), "postern-served-"));
  const file = join(folder, "postern.yaml");
  await writeFile(file, yaml);
  const [signer, certificate] = [await openSigner(folder), await openCertificate(folder, "127.0.0.1")];
  const reports: LogReport[] = [];
  const host = {
    publicKeys: signer.publicKey,
    world,
    journal: (report: LogReport) => void reports.push(report),
  };
  const workshop = await openWorkshop(file, host);
  const gateway = await openGateway(certificate, "127.0.0.1", 0);
  gateway.serve(workshop.handlers);
  const catalogue = await readCatalogue();

  /** The webhook configurations, as `postern manifests` prints them, under a name, of a cluster where there are several. */
  const manifests = (name = "postern", wanted?: string) => {
    const [chosen, cluster] = chooseCluster(workshop.config, wanted);
    const segment = signer.segment(chosen, cluster.keyVersions.at(-1) ?? 1);
    const address = (rule: string, phase: string) => `${gateway.url}/${segment}/${rule}/${phase}`;
    return configurations(catalogue, cluster, { name, address, ca: certificate.ca, harden: false });
  };
  return {
    reports,
    manifests,
    stop: async () => {
      await gateway.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
};

/** A rule of a test's own, as if it had a folder. */
export const listed = (name: string, rule: Rule): CatalogueRule => ({
  name,
  folder: "",
  phases: listPhases(rule),
  rule,
});

/** What surrounds rules that a test serves. */
export interface Host {
  certificate: ServerCertificate;
  world?(cluster: string, milliseconds: number): Capabilities;
  /** Stands before an endpoint. */
  before?(name: string, handler: Handler): Handler;
}

/** The name of a registration, and the cluster and key of its URLs. */
export interface Caller {
  name?: string;
  cluster?: string;
  signer?: ReturnType<typeof signing>;
  /** Has one entry a rule, whatever its variants. */
  whole?: boolean;
}

/** These rules behind Postern's gateway. Keys and postern.yaml can change while they are served. */
export const serveRules = async (rules: CatalogueRule[], yaml: string, host: Host) => {
  const own = signing(1);
  const reports: LogReport[] = [];
  let config = parseConfig(yaml, rules);
  const gateway = await openGateway(host.certificate, "127.0.0.1", 0);

  /** From the next request on. */
  const serve = (text: string, publicKeys = own.publicKey) => {
    config = parseConfig(text, rules);
    const { world = createUnconnectedCapabilities, before = (_, handler) => handler } = host;
    const journal = (report: LogReport) => void reports.push(report);
    const handlers = listServedRules(config, rules).map((listed) => {
      const handler = handlerOf(config, listed, { publicKeys, world, journal });
      return [listed.name, before(listed.name, handler)] as const;
    });
    gateway.serve(new Map(handlers));
  };
  const manifests = ({ name = "postern", cluster: wanted, signer = own, whole = false }: Caller = {}) => {
    const [chosen, cluster] = chooseCluster(config, wanted);
    const segment = signer.segment(chosen, cluster.keyVersions.at(-1));
    const address = (rule: string, phase: string) => `${gateway.url}/${segment}/${rule}/${phase}`;
    const catalogue = whole ? rules.map(asWhole) : rules;
    return configurations(catalogue, cluster, { name, address, ca: host.certificate.ca, harden: false });
  };
  /** What was reported while this was done. */
  const during = async <T>(act: () => Promise<T>): Promise<[T, LogReport[]]> => {
    const start = reports.length;
    return [await act(), reports.slice(start)];
  };
  serve(yaml);
  return { reports, serve, manifests, during, url: gateway.url, stop: () => gateway.close() };
};

const asWhole = ({ rule: { variants: _, ...rule }, ...listed }: CatalogueRule): CatalogueRule => ({ ...listed, rule });

/** Of the configuration that has a phase's entries. */
export const kindOf = (phase: Phase | undefined) =>
  phase === "mutate" ? "MutatingWebhookConfiguration" : "ValidatingWebhookConfiguration";

export type Manifests = ReturnType<typeof configurations>;
const collection = "/apis/admissionregistration.k8s.io/v1";

/**
 * Makes the API server wait longer for each entry: a busy machine may be slow, which says nothing about rules. An entry
 * with a single second is meant to be late.
 */
export const patient = (manifests: Manifests): Manifests =>
  manifests.map(({ webhooks, ...manifest }) => ({
    ...manifest,
    webhooks: webhooks.map((one) => ({ ...one, timeoutSeconds: one.timeoutSeconds === 1 ? 1 : 30 })),
  }));

/** As kubectl apply would; the API server's own validation has its say. */
export const register = async (admin: Client, manifests: Manifests, query = ""): Promise<void> => {
  for (const body of manifests) {
    const { code, body: said } = await admin({ method: "POST", path: `${placeOf(body)}${query}`, body });
    if (code !== 201) throw new Error(`the API server refuses the ${body.kind}: ${said.message}`);
  }
};

const placeOf = ({ kind }: { kind: string }) => `${collection}/${kind.toLowerCase()}s`;

/** As `kubectl apply --server-side` would, whatever was there before; resolves once the API server calls by them. */
export const apply = async (admin: Client, manifests: Manifests, herald: Herald): Promise<void> => {
  const announced = manifests.map((manifest) => herald.announce(manifest));
  for (const { body } of announced) {
    const { code, body: said } = await admin({
      method: "PATCH",
      path: `${placeOf(body)}/${body.metadata.name}?fieldManager=postern&force=true`,
      contentType: "application/apply-patch+yaml",
      body,
    });
    if (code >= 300) throw new Error(`the API server refuses the ${body.kind}: ${said.message}`);
  }
  await until("the API server did not call by the new webhooks", async () => {
    const said = await herald.ask(admin);
    return announced.every(({ word }) => said?.includes(word));
  });
};

/** As kubectl delete would; resolves once the API server calls by them no more. */
export const remove = async (admin: Client, manifests: Manifests, herald: Herald): Promise<void> => {
  for (const body of manifests) await admin({ method: "DELETE", path: `${placeOf(body)}/${body.metadata.name}` });
  await until("the API server still calls by webhooks that are gone", async () => {
    const said = await herald.ask(admin);
    const gone = ({ kind, metadata }: Manifests[number]) =>
      !said?.some((word) => word.startsWith(`${kind}/${metadata.name}/`));
    return said !== undefined && manifests.every(gone);
  });
};

/** Adds an entry that shows when a configuration is in use: it answers a request of its own with a warning. */
export interface Herald {
  announce(manifest: Manifests[number]): { body: Manifests[number]; word: string };
  /** The words of all configurations that the API server calls by now; undefined where it does not say. */
  ask(admin: Client): Promise<string[] | undefined>;
}

/** A herald whose entries call `url`, with the word as the path's end, for a warning that says it. */
export const herald = (url: string, ca: string): Herald => {
  let count = 0;
  const announce = (manifest: Manifests[number]) => {
    count += 1;
    const word = `${manifest.kind}/${manifest.metadata.name}/${count}`;
    const entry: Manifests[number]["webhooks"][number] = {
      name: "herald.postern.dev",
      clientConfig: { url: `${url}/${word}`, caBundle: Buffer.from(ca).toString("base64") },
      rules: [
        { apiGroups: ["coordination.k8s.io"], apiVersions: ["v1"], resources: ["leases"], operations: ["CREATE"] },
      ],
      matchConditions: [{ name: "asks-the-herald", expression: 'object.metadata.name == "herald"' }],
      failurePolicy: "Ignore",
      matchPolicy: "Exact",
      sideEffects: "None",
      timeoutSeconds: 30,
      admissionReviewVersions: ["v1"],
    };
    return { body: { ...manifest, webhooks: [...manifest.webhooks, entry] }, word };
  };
  const ask = async (admin: Client) => {
    const body = { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata: { name: "herald" } };
    const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases?dryRun=All";
    const { code, warnings } = await admin({ method: "POST", path, body });
    return code === 201 ? warnings : undefined;
  };
  return { announce, ask };
};

/** However slow the machine is, in milliseconds. */
const patience = 120_000;

/** Until it is so, or the sentence that says it is not. */
export const until = async (otherwise: string, so: () => Promise<boolean> | boolean): Promise<void> => {
  for (const end = Date.now() + patience; Date.now() < end; await wait(50)) if (await so()) return;
  throw new Error(otherwise);
};

/** Until the API server, which takes a second to notice, calls the webhooks for what `probe` does. */
export const noticed = async (probe: () => Promise<unknown>, seen: () => boolean): Promise<void> => {
  for (const end = Date.now() + patience; Date.now() < end; await wait(200)) {
    await probe();
    if (seen()) return;
  }
  throw new Error("the API server did not call the webhooks");
};
