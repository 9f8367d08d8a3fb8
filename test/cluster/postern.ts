import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { Report } from "#lib/journal.ts";
import { unconnected } from "#lib/needs.ts";
import { chooseCluster } from "../../infra/config.ts";
import { openGateway } from "../../infra/gateway.ts";
import { openCertificate, openSigner } from "../../infra/keys.ts";
import { readCatalogue } from "../../infra/registry.ts";
import { configurations } from "../../infra/webhooks.ts";
import { openWorkshop } from "../../infra/workshop.ts";
import type { Client } from "./client.ts";

/** Postern as `npm start` runs it, for a postern.yaml of a test's own. */
export const servePostern = async (yaml: string) => {
  const folder = await mkdtemp(join(tmpdir(), "postern-served-"));
  const file = join(folder, "postern.yaml");
  await writeFile(file, yaml);
  const [signer, certificate] = [await openSigner(folder), await openCertificate(folder, "127.0.0.1")];
  const reports: Report[] = [];
  const host = {
    publicKeys: signer.publicKey,
    world: unconnected,
    journal: (report: Report) => void reports.push(report),
  };
  const workshop = await openWorkshop(file, host);
  const gateway = await openGateway(certificate, "127.0.0.1", 0);
  gateway.serve(workshop.handlers);
  const catalogue = await readCatalogue();

  /** The webhook configurations, as `postern manifests` prints them, under a name. */
  const manifests = (name = "postern") => {
    const [chosen, cluster] = chooseCluster(workshop.config, undefined);
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

type Manifests = ReturnType<typeof configurations>;
const collection = "/apis/admissionregistration.k8s.io/v1";

/** As kubectl apply would; the API server's own validation has its say. */
export const register = async (admin: Client, manifests: Manifests, query = ""): Promise<void> => {
  for (const body of manifests) {
    const kind =
      body.kind === "MutatingWebhookConfiguration"
        ? "mutatingwebhookconfigurations"
        : "validatingwebhookconfigurations";
    const { code, body: said } = await admin({ method: "POST", path: `${collection}/${kind}${query}`, body });
    if (code !== 201) throw new Error(`the API server refuses the ${body.kind}: ${said.message}`);
  }
};

/** Until the API server, which takes a second to notice, calls the webhooks for what `probe` does. */
export const noticed = async (probe: () => Promise<unknown>, seen: () => boolean): Promise<void> => {
  for (const end = Date.now() + 20_000; Date.now() < end; await wait(200)) {
    await probe();
    if (seen()) return;
  }
  throw new Error("the API server did not call the webhooks");
};
