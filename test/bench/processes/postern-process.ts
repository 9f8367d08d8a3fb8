import { createUnconnectedCapabilities } from "#lib/core/capabilities.ts";
import { readCatalogue } from "../../../infra/catalogue/registry.ts";
import { chooseCluster } from "../../../infra/config/config.ts";
import { readOrCreateServerCertificate, readOrCreateUrlSigner } from "../../../infra/keys/keys.ts";
import { readConfig } from "../../../infra/project/project.ts";
import { createListedEndpoint, listServedRulesAndGroups } from "../../../infra/project/served.ts";
import { openImitatedApiGateway } from "../../../infra/serve/gateway.ts";
import { createGatewayHandler } from "../../../infra/serve/handlers.ts";
import { buildWebhookConfigurations } from "../../../infra/webhooks/configurations.ts";
import { benchMutatorSets } from "../inputs/mutators.ts";
import { printThenAnswerWithCpuTime } from "./processes.ts";

// Runs Postern as `postern serve` does, but without a log line for each review, because the compared servers print
// none. The process reports a webhook configuration for each rule or group, because all entries together would be too
// many for one configuration.

const [folder = "", file = ""] = process.argv.slice(2);
const catalogue = [...(await readCatalogue()), ...benchMutatorSets.flatMap(({ mutators }) => mutators)];
const config = await readConfig(file, catalogue);
const [signer, certificate] = [
  await readOrCreateUrlSigner(folder),
  await readOrCreateServerCertificate(folder, "127.0.0.1"),
];
const host = { publicKeys: signer.publicKey, openCapabilities: createUnconnectedCapabilities, writeLogLine: () => {} };
const gateway = await openImitatedApiGateway(certificate, "127.0.0.1", 0);
const served = listServedRulesAndGroups(config, catalogue);
gateway.serve(
  new Map(served.map((listed) => [listed.name, createGatewayHandler(createListedEndpoint(config, listed, host))])),
);

const [clusterName, cluster] = chooseCluster(config, undefined);
const segment = signer.signSegment(clusterName, 1);
const buildAddress = (rule: string, phase: string) => `${gateway.url}/${segment}/${rule}/${phase}`;
const manifests = served.map(({ name, ...listed }) => {
  const rules = listed.members ?? [{ name, ...listed }];
  return [
    name,
    buildWebhookConfigurations(rules, cluster, { name, address: buildAddress, ca: certificate.ca, harden: false }),
  ] as const;
});
// Writes the configurations first. Then answers each line of input with the CPU time.
printThenAnswerWithCpuTime(Object.fromEntries(manifests));
