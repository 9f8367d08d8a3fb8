import { dirname, join } from "node:path";
import { findRuleByNameOrPlugin } from "../../catalogue/rule-names.ts";
import { type CommandOption, type ParsedOptions, writeNote } from "../../cli/command.ts";
import { Complaint } from "../../cli/complaint.ts";
import { formatDidYouMean } from "../../cli/did-you-mean.ts";
import { parseBaseUrl, readOptionFile } from "../../cli/options.ts";
import { getConfigFile } from "../../cli/roots.ts";
import { chooseCluster, type PosternConfig } from "../../config/config.ts";
import { isExpired, parseCertificates, readOrCreateUrlSigner, type WebhookUrlSigner } from "../../keys/keys.ts";
import { readProject, reportBroken } from "../../project/project.ts";
import { readRuleNames } from "../../project/project-rules.ts";

/**
 * Returns the rule that a text names. Returns an unknown name unchanged, because a stage may still have the function of
 * a rule whose folder was deleted.
 */
export const resolveStageRule = async (text: string): Promise<string> => {
  const names = await readRuleNames();
  const rule = findRuleByNameOrPlugin(text, names);
  const suggestion = formatDidYouMean(text, names).trim();
  if (rule === undefined && suggestion !== "") writeNote(`there is no folder functions/${text}; ${suggestion}`);
  return rule ?? text;
};

export const instanceNameOption = {
  name: { type: "string", value: "NAME", default: "postern", says: "the name of the webhook configurations" },
} satisfies Record<string, CommandOption>;

/** Returns the value of --name. It must be valid as the value of a label, too. */
export const readInstanceName = (options: ParsedOptions): string => {
  const name = options.text("name") ?? "postern";
  if (name.length > 63 || !/^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(name))
    throw new Complaint(
      `--name takes at most 63 lower-case letters, digits, hyphens and dots, with a letter or a digit at both ends, not "${name}"`,
    );
  return name;
};

/** Returns the cluster that --cluster names, or all clusters of postern.yaml without this option. */
export const listChosenClusters = (config: PosternConfig, options: ParsedOptions): string[] => {
  const name = options.text("cluster");
  return name === undefined ? [...config.clusters.keys()] : [chooseCluster(config, name)[0]];
};

/** Reads the rules and postern.yaml for a verb that changes a stage. `--cluster` can choose one cluster. */
export const readDeploymentConfig = async (options: ParsedOptions) => {
  const file = getConfigFile();
  const { catalogue, broken, config } = await readProject(file);
  reportBroken(broken, () => true); // Each rule is needed, so a broken one stops the command.
  return { file, catalogue, config, clusters: listChosenClusters(config, options) };
};

/** Reads the file of --ca. Throws a Complaint if it has no valid certificate. */
export const readCaOption = async (file: string): Promise<string> => {
  const pem = await readOptionFile(file, "--ca");
  const found = parseCertificates(pem);
  if (found === undefined) throw new Complaint(`--ca ${file} contains no valid certificate in PEM`);
  if (found.every(isExpired)) throw new Complaint(`--ca ${file} expired on ${found.at(-1)?.validTo}`);
  return pem;
};

/** Reads the options --url and --ca. */
export const readEndpointOptions = async (options: ParsedOptions): Promise<{ url?: string; ca?: string }> => {
  const [url, ca] = [options.text("url"), options.text("ca")];
  return {
    ...(url !== undefined && { url: parseBaseUrl(url, "--url") }),
    ...(ca !== undefined && { ca: await readCaOption(ca) }),
  };
};

/** Returns the signer of URLs. With `--stage`, it has the stage's key; else a key beside `file`, the postern.yaml. */
export const loadStageOrLocalUrlSigner = async (options: ParsedOptions, file: string): Promise<WebhookUrlSigner> => {
  if (options.text("stage") === undefined) return readOrCreateUrlSigner(join(dirname(file), ".postern"));
  // These modules load the AWS SDK, so they are imported only with `--stage`.
  const [{ runInStage: run }, { readKeyring }] = await Promise.all([
    import("../../aws/stage.ts"),
    import("../../rollout/stage/keyring.ts"),
  ]);
  return run(options, async ({ name, parameters }) => {
    const keyring = await readKeyring(parameters);
    if (keyring === undefined) throw new Complaint(`stage ${name} has no keys yet; postern deploy creates them`, 1);
    return keyring.current;
  });
};

/** Reads the AWS credentials. This loads the AWS SDK, so it is called only for clusters that authenticate with AWS. */
export const readAwsIdentity = async () => (await import("../../aws/stage.ts")).createAwsStageClients("").readAwsKeys();
