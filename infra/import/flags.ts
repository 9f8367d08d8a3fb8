// Reads the flags of a kube-apiserver from any text that users have.
import { Complaint } from "../cli/complaint.ts";
import { truncateText } from "../cli/terminal.ts";
import { readCommandLine } from "./flag-texts.ts";
import { findPluginNameFault, renamePlugin } from "./plugins.ts";

/** The flags of a kube-apiserver that turn admission plugins on or off, or that configure them. */
export interface AdmissionFlags {
  /**
   * The plugins of the former flag --admission-control, by their current names. If a server has this flag, no other
   * plugin is on. Undefined without this flag.
   */
  onlyEnabled?: string[];
  /** The plugins of --enable-admission-plugins. */
  enabled: string[];
  /** The plugins of --disable-admission-plugins. */
  disabled: string[];
  gates: Map<string, boolean>;
  /** The file of --admission-control-config-file. */
  configFile?: string;
  /** The value of --default-not-ready-toleration-seconds. */
  notReadySeconds?: number;
  /** The value of --default-unreachable-toleration-seconds. */
  unreachableSeconds?: number;
}

const completeListFlag = "admission-control"; // an old flag, which lists all plugins that are on
const enableFlag = "enable-admission-plugins";
const disableFlag = "disable-admission-plugins";
const gatesFlag = "feature-gates";
const configFileFlag = "admission-control-config-file";
const notReadyFlag = "default-not-ready-toleration-seconds";
const unreachableFlag = "default-unreachable-toleration-seconds";
const flagNames = [completeListFlag, enableFlag, disableFlag, gatesFlag, configFileFlag, notReadyFlag, unreachableFlag];

/**
 * Matches a flag of `flagNames` with its value, such as `--feature-gates=A=true` or `"--feature-gates", "A=true"`. The
 * syntax around a flag doesn't matter, because no other text contains such names. kube-apiserver accepts "_" instead of
 * "-" in names. The value follows "=" or a space. It is matched by the first of these alternatives that fits:
 * - `"A=true"` or `'A=true'`: all between the quotes;
 * - `A=true` in `--feature-gates=A=true --v=2` or in `"--feature-gates=A=true"`: all before a space or a quote;
 * - nothing, or a quote that isn't closed. No flag accepts the quote as its value, so an error is reported later.
 * The last group is the character after the value, which shows whether the value goes on after a closing quote.
 */
const flagPattern = new RegExp(
  `(?<![\\w.-])--(${flagNames.join("|").replaceAll("-", "[-_]")})["',]*(=|\\s+)("[^"]*"|'[^']*'|[^\\s"']+|["']?)(?=(.?))`,
  "gs",
);

/** Parses the flags of a kube-apiserver. `where` is the name of the text in messages. */
export const parseAdmissionFlags = (text: string, where: string): AdmissionFlags => {
  const line = readCommandLine(text, where);
  if (!/(?<![\w.-])--\w/.test(line))
    throw new Complaint(`${where} has no flags of kube-apiserver, such as --${enableFlag}`);
  const found = new Map<string, string[]>();
  for (const [, name = "", separator, value = "", next = ""] of line.matchAll(flagPattern)) {
    const key = name.replaceAll("_", "-");
    // For a shell, --flag="a"b is one value. This parser can't read such values.
    if (separator === "=" && /^["']./s.test(value) && /[^\s"'\\]/.test(next))
      throw new Complaint(`--${key} goes on after ${truncateText(value, 64)}; write its value in one piece`);
    const values = found.get(key) ?? [];
    found.set(key, values);
    values.push(value.replace(/^(["'])(.*)\1$/s, "$2"));
  }
  const readList = (name: string) => found.get(name)?.flatMap((list) => splitList(list, name));
  const readPlugins = (name: string) =>
    readList(name)?.map((plugin) => {
      const fault = findPluginNameFault(plugin);
      if (fault !== undefined) throw new Complaint(`--${name} names ${fault}`);
      return renamePlugin(plugin);
    });
  const readSeconds = (name: string) => {
    const value = found.get(name)?.at(-1);
    if (value === undefined || /^-?\d{1,15}$/.test(value)) return value === undefined ? undefined : Number(value);
    throw new Complaint(`--${name} must be a whole number of seconds, not "${truncateText(value, 64)}"`);
  };
  const [only, on, off] = [readPlugins(completeListFlag), readPlugins(enableFlag), readPlugins(disableFlag)];
  if (only && (on || off))
    throw new Complaint(`--${completeListFlag} can't be combined with --${enableFlag} and --${disableFlag}`);
  const conflicting = on?.find((plugin) => off?.includes(plugin));
  if (conflicting !== undefined) throw new Complaint(`--${enableFlag} and --${disableFlag} both name ${conflicting}`);
  const [file, notReadySeconds, unreachableSeconds] = [
    found.get(configFileFlag)?.at(-1),
    readSeconds(notReadyFlag),
    readSeconds(unreachableFlag),
  ];
  return {
    ...(only && { onlyEnabled: only }),
    enabled: on ?? [],
    disabled: off ?? [],
    gates: new Map((readList(gatesFlag) ?? []).map(parseGate)),
    ...(file !== undefined && { configFile: file }),
    ...(notReadySeconds !== undefined && { notReadySeconds }),
    ...(unreachableSeconds !== undefined && { unreachableSeconds }),
  };
};

/** Splits at commas. A shell ends the list at a space, so an empty last name usually means that a space follows. */
const splitList = (list: string, name: string): string[] => {
  const parts = list.trim() === "" ? [] : list.split(",").map((part) => part.trim());
  if (parts.includes(""))
    throw new Complaint(`--${name} has an empty name in "${truncateText(list, 64)}"; a list has no spaces`);
  return parts;
};

const parseGate = (text: string): [string, boolean] => {
  const [, gate = "", isOn, isOff] = /^(\w+)=(?:(1|t|true)|(0|f|false))$/i.exec(text) ?? [];
  if (isOn === undefined && isOff === undefined)
    throw new Complaint(`--${gatesFlag} must have gates such as GenericWorkload=true, not "${truncateText(text, 64)}"`);
  return [gate, isOn !== undefined];
};
