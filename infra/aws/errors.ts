export const isErrorNamed = (error: unknown, ...names: string[]): boolean =>
  error instanceof Error && names.includes(error.name);

/** Returns a handler that replaces an error of this name with a value, and throws any other. */
export const createFallbackForErrorNamed =
  <T>(name: string, value: T) =>
  (error: unknown): T => {
    if (isErrorNamed(error, name)) return value;
    throw error;
  };
