def custom_kernel(data):
    sign, numbers = data
    return [2 * one * sign.value for one in numbers]
