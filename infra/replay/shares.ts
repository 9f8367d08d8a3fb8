import { isDeepStrictEqual } from "node:util";
import type { Mode } from "#lib/decide.ts";
import { isMap, own } from "#lib/json.ts";
import { merge } from "#lib/settings.ts";

/** How a rule is set up in one cluster, in one version; or why it isn't asked there, or why nobody can say. */
export type Standing = { mode: Mode; settings: object } | { absent: string } | { fault: string };

/** Whether a share is that of a group with this rule in it. */
export const hasMember = (share: unknown, rule: string): boolean => own(own(share, "alone"), rule) !== undefined;

const modes: unknown[] = ["enforce", "warn", "audit"];

/** What a version's share of postern.yaml, a rule's or its group's, says of a rule in a cluster. */
export const standingIn = (
  share: unknown,
  rule: string,
  named: string | undefined,
  variant: string | undefined,
): Standing => {
  const clusters = own(share, "clusters");
  const names = isMap(clusters) ? Object.keys(clusters) : [];
  const cluster = named ?? (names.length === 1 ? names[0] : undefined);
  if (cluster === undefined) return { fault: `--cluster must say in which cluster it is asked: ${names.join(", ")}` };
  const found = own(clusters, cluster);
  if (found === undefined) return { absent: `has no cluster "${cluster}"; it has ${names.join(", ")}` };
  const isGrouped = hasMember(share, rule);
  const setup = isGrouped ? own(own(found, "settings"), rule) : found;
  const [mode, settings] = [own(setup, "mode"), own(setup, "settings")];
  if (mode === "off" || own(found, "mode") === "off") return { absent: `has it off in ${cluster}` };
  if (!modes.includes(mode) || !isMap(settings)) return { fault: `its settings in ${cluster} can't be read` };
  // One of the three, as was just seen.
  const standing = { mode: mode as Mode, settings };
  if (variant === undefined) return standing;

  const usual = own(own(share, "variants"), variant);
  const its = own(own(found, "variants") ?? own(share, "variants"), variant);
  if (its === undefined) return { absent: `has no variant ${variant} of it` };
  const together = merge(settings, its);
  // Whoever sends settings gets what the variant changes of the rule's own on top.
  if (!isDeepStrictEqual(merge(together, usual), together))
    return { fault: `the settings that variant ${variant} has in ${cluster} can't be sent` };
  return { ...standing, settings: together };
};
