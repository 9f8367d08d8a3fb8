import type { Pod, ServiceAccount } from "kubernetes-types/core/v1.d.ts";
import { listContainers } from "postern/objects/pod";
import { secretsOf } from "postern/objects/secret";

/** Upstream doesn't check projected volumes. */
export const unlistedSecret = (pod: Pod, account: ServiceAccount): string | undefined => {
  const { imagePullSecrets = [], volumes = [] } = pod.spec ?? {};
  const listed = namesOf(account.secrets);
  const pulling = namesOf(account.imagePullSecrets);
  const unlistedVolumes = volumes.filter(({ secret }) => secret && !listed.has(secret.secretName ?? ""));
  const [first] = [
    ...unlistedVolumes.map(({ secret }) => `volume with ${notAllowed(secret?.secretName ?? "", account)}`),
    ...unlistedIn(pod, "initContainers", account),
    ...unlistedIn(pod, "containers", account),
    ...imagePullSecrets.flatMap(({ name = "" }, index) =>
      pulling.has(name)
        ? []
        : [
            `imagePullSecrets[${index}].name="${name}" is not allowed because service account ${account.metadata?.name} does not reference that imagePullSecret`,
          ],
    ),
  ];
  return first;
};

export const secretOfEphemeral = (pod: Pod, account: ServiceAccount): string | undefined =>
  unlistedIn(pod, "ephemeralContainers", account)[0];

const words = {
  initContainers: "init container",
  containers: "container",
  ephemeralContainers: "ephemeral container",
} as const;

const unlistedIn = (pod: Pod, kind: keyof typeof words, account: ServiceAccount): string[] => {
  const listed = namesOf(account.secrets);
  return listContainers(pod, [kind]).flatMap(({ container }) =>
    secretsOf(container)
      .filter(({ name }) => !listed.has(name))
      .map(
        ({ by, name }) => `${words[kind]} ${container.name ?? ""} with ${by} referencing ${notAllowed(name, account)}`,
      ),
  );
};

const notAllowed = (name: string, account: ServiceAccount) =>
  `secret.secretName="${name}" is not allowed because service account ${account.metadata?.name} does not reference that secret`;

const namesOf = (references: readonly { name?: string }[] = []) => new Set(references.map(({ name = "" }) => name));
