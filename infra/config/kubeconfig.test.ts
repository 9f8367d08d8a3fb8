import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { stringify } from "yaml";
import { https } from "#lib/needs.ts";
import { rule } from "#lib/rule.ts";
import { toCatalogueRule } from "../../test/catalogue-rules.ts";
import { createTestFolder } from "../../test/folders.ts";
import { readOrCreateServerCertificate } from "../keys/keys.ts";
import { readConfig } from "../project/project.ts";

const folder = await createTestFolder();
const file = join(folder, "postern.yaml");

const service = {
  url: "",
  ca: "",
  serverName: "",
  tokenSecret: "",
  tokenFile: "",
  clientCertificate: "",
  clientKey: "",
};
const asking = rule({
  summary: "Asks.",
  match: [],
  settings: { backend: { kubeconfig: "" }, service },
  // The setting `service` is filled from the kubeconfig that the setting `backend.kubeconfig` names.
  kubeconfigs: { "backend.kubeconfig": "service" },
  needs: { ask: https() },
  checkSettings: ({ service: { url } }) => (url === "" ? "must have a url" : undefined),
  validate() {},
});

const writeKubeconfig = (name: string, user: object, cluster: object = {}) =>
  writeFile(
    join(folder, name),
    stringify({
      "current-context": "now",
      contexts: [{ name: "now", context: { cluster: "c", user: "u" } }],
      clusters: [{ name: "c", cluster: { server: `https://${name}.example/path`, ...cluster } }],
      users: [{ name: "u", user }],
    }),
  );
/** Returns the settings of the service in each cluster. */
const readServices = async (settings: object, clusters: Record<string, object> = { local: {} }) => {
  const ofClusters = Object.entries(clusters).map(([name, settings]) => [name, { rules: { asking: { settings } } }]);
  await writeFile(file, stringify({ rules: { asking: { settings } }, clusters: Object.fromEntries(ofClusters) }));
  const config = await readConfig(file, [toCatalogueRule("asking", asking)]);
  return Object.fromEntries(
    [...config.clusters].map(([name, { rules }]) => [name, Object(rules.get("asking")?.settings).service]),
  );
};

describe("a kubeconfig of a service", () => {
  const arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:images-AbCdEf";
  const parameter = "arn:aws:ssm:eu-west-1:123456789012:parameter/images";
  const serviceOfA = { ...service, url: "https://a.example/path" };
  const withKubeconfigA = { backend: { kubeconfig: "a" } };

  it("a kubeconfig fills the settings of a service, with places in AWS and on this machine", async () => {
    const user = { "client-certificate": arn, "client-key": arn, tokenFile: parameter };
    await writeKubeconfig("a", user, { "tls-server-name": "b.example" });
    const inAws = { clientCertificate: arn, clientKey: arn, tokenFile: parameter, serverName: "b.example" };
    assert.deepEqual(await readServices(withKubeconfigA), { local: { ...serviceOfA, ...inAws } });

    const { cert: certificate, key } = await readOrCreateServerCertificate(folder, "127.0.0.1");
    for (const text of [certificate, `${certificate}${key}`, `${key}${certificate}`]) {
      await writeFile(join(folder, "client.crt"), text);
      await writeKubeconfig("a", { "client-certificate": "client.crt", "client-key": "client.key" });
      const here = { clientCertificate: certificate, clientKey: join(folder, "client.key") };
      assert.deepEqual(await readServices(withKubeconfigA), { local: { ...serviceOfA, ...here } });
    }
  });

  it("a cluster's kubeconfig completely replaces the general kubeconfig and the general service", async () => {
    await writeKubeconfig("a", {});
    await writeKubeconfig("b", { tokenFile: arn });
    const clusters = { prod: {}, test: withKubeconfigA };
    const ofB = { ...service, url: "https://b.example/path", tokenFile: arn };
    assert.deepEqual(await readServices({ backend: { kubeconfig: "b" } }, clusters), { prod: ofB, test: serviceOfA });
    const written = { ...service, url: "https://c.example", tokenSecret: arn };
    assert.deepEqual(await readServices({ service: written }, clusters), { prod: written, test: serviceOfA });
  });

  const refused: [name: string, user: object, cluster: object, sentence: RegExp][] = [
    ["with a token", { token: "SECRET" }, {}, /finds token in \S+, but settings hold no secrets; name tokenFile/],
    ["with a key", { "client-key-data": "SECRET" }, {}, /finds client-key-data in/],
    ["with a password", { username: "SECRET", password: "SECRET" }, {}, /finds username, password in/],
    ["that runs a program", { exec: {} }, {}, /would run a program/],
    ["that trusts any server", {}, { "insecure-skip-tls-verify": true }, /would trust any server/],
    ["with a proxy", {}, { "proxy-url": "http://a" }, /would ignore proxy-url in/],
    [
      "whose client certificate is no certificate",
      { "client-certificate-data": "U0VDUkVU" },
      {},
      /finds no certificate in/,
    ],
    ["with an unreadable CA", {}, { "certificate-authority": "none.crt" }, /none\.crt/],
  ];
  for (const [name, user, cluster, sentence] of refused)
    it(`${name} is refused`, async () => {
      await writeKubeconfig("a", user, cluster);
      await assert.rejects(readServices(withKubeconfigA), ({ message }: Error) => {
        assert.match(message, /^postern\.yaml:\d+ rules\.asking\.settings\.backend\.kubeconfig /);
        assert.match(message, sentence);
        assert.doesNotMatch(message, /SECRET/);
        // `checkSettings` must not complain, too, that the kubeconfig has filled in no url.
        assert.doesNotMatch(message, /must have a url/);
        return true;
      });
    });

  it("a missing kubeconfig of a service is refused", () =>
    assert.rejects(
      readServices({ backend: { kubeconfig: "none" } }),
      /rules\.asking\.settings\.backend\.kubeconfig .*none/,
    ));

  it("a general kubeconfig is refused beside settings of its service, even those of only one cluster", async () => {
    await writeKubeconfig("a", {});
    const written = { service: { url: "https://c.example" } };
    const sentence = /settings\.service must be left out, because backend\.kubeconfig names a kubeconfig$/m;
    await assert.rejects(readServices({ ...withKubeconfigA, ...written }), sentence);
    await assert.rejects(readServices(withKubeconfigA, { prod: written }), sentence);
  });
});
